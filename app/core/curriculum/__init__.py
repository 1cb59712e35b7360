"""Choose which items to try next from their estimates. These are rules only; they never hold all items in memory.

- `checks`: rules on settings that must fit together, and `progress`.
- `estimates`: the estimate of an item, and how an observation updates it.
- `indexes`: the sorted sets of items, and the values that strategies and the store exchange.
- `bins`: the quantile bins of mean reward, and the distribution over bins.
- `strategies`: each strategy's distribution as a mixture over indexes, one file for each.
- `sampling`: draws from the mixture without replacement, and their probabilities.
- `strategies.thompson`: the best of several candidates by draws from their posteriors.
- `metrics`, `state`: the metrics, and the document that a curriculum is restored from.
"""
