// What operators do with the groups of a list: delete those that wait.
import { send } from "../lib/api.js";
import { html } from "../lib/html.js";
import { counted, shown } from "../lib/text.js";
import { Action } from "./action.js";
import { Select } from "./fields.js";
import { environmentChoice, wordsOf } from "./filters.js";
import { Field } from "./operate.js";

const WAITING = ["queued", "buffered"];

/** Whether no group that waits can match a filter: it has no step, and no reason for a drop. */
const isOfOthers = ([name, value]) =>
  name.startsWith("step_") || name === "dropped" || (name === "state" && !WAITING.includes(value));

/** Delete waiting groups that match the filters of the list, after they were counted. */
export function DeleteGroups({ run, status, filters }) {
  const { environment: wanted = "", ...others } = filters;
  const given = Object.entries(others);
  const wrong = given.filter(isOfOthers);
  const request = (values) => {
    const asked = [...given, ...Object.entries(values).filter(([, value]) => value !== "")];
    return asked.length === 0 || wrong.length > 0
      ? null
      : { method: "DELETE", path: `v1/runs/${encodeURIComponent(run)}/groups?${new URLSearchParams(asked)}` };
  };
  return html`<${Action}
    needs="operate"
    label="Delete groups"
    preparing="Count them"
    title=${`Delete waiting groups of ${shown(run, 64)}`}
    request=${request}
    missing=${wrong.length > 0 ? "Nothing can be deleted with these filters." : "Name at least one filter."}
    prepare=${async (asked) => `${counted(await all(asked, true), "waiting group")} would be deleted.`}
    perform=${(asked) => all(asked, false)}
    fields=${[
      html`<${Select} key="environment" title="Environment" name="environment"
        ...${environmentChoice(status.environments, wanted)} />`,
      html`<${Field} key="size" name="size" title="Sequences in a group" min="1" step="1" />`,
      html`<${Field} key="old" name="older_than_version" title="Sampled before version" step="1" />`,
    ]}
    done=${(count) => html`<p>${counted(count, "group")} deleted.</p>`}
  >
    <p>
      Groups that wait and match every filter are deleted for good, and count as dropped: deleted. Groups in batches
      stay.
    </p>
    ${given.length > 0 && html`<p>Filters of the list: <strong>${given.map(wordsOf).join("; ")}</strong>.</p>`}
    ${
      wrong.length > 0 &&
      html`<p class="failed">
        No group that waits can match this: ${wrong.map(wordsOf).join("; ")}. Remove it from the list first.
      </p>`
    }
    <p>
      The button goes through all groups. The command looks at 1,000: repeat it with the <code>cursor</code> of its
      answer.
    </p>
  <//>`;
}

// Go through all pages, and return how many groups were found.
async function all(request, dryRun) {
  let found = 0;
  let cursor = null;
  do {
    const more = { dry_run: dryRun, ...(cursor === null ? {} : { cursor }) };
    const answer = await send({ ...request, path: `${request.path}&${new URLSearchParams(more)}` });
    found += answer.deleted_groups;
    ({ cursor } = answer);
  } while (cursor !== null);
  return found;
}
