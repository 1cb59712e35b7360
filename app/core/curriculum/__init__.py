"""Curricula: what is known of items, and strategies of choosing which to try next; pure rules, no item ever in memory.

- `policy`: settings, and what may not be set; `progress`.
- `estimates`: what is known of an item, and what an observation changes.
- `orders`: the sorted sets that items stand in, and the values that strategies and the store exchange.
- `bins`: which ranks of mean reward are which bin; the law over bins.
- `strategies`: a strategy's law as parts of orders; one file for each.
- `choosing`: draws from the parts, without replacement; their probabilities.
- `thompson`: of candidates, the best by draws from their posteriors.
- `metrics`, `state`: numbers for people, and the document that a curriculum is restored from.
"""
