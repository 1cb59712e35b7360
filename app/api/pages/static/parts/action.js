// Actions of operators: a button, and a dialog that says what will happen before it happens.
import { send, Unreachable } from "../lib/api.js";
import { refreshAll, useConnection, useFeed } from "../lib/feeds.js";
import { html, useEffect, useRedraw, useRef, useState } from "../lib/html.js";
import { shown } from "../lib/text.js";
import { Command, curl } from "./panel.js";

const IDENTITY_EVERY_S = 60;

/** Who the reader is, as the service says; null while that is not known, or if the service refuses the token. */
export function useIdentity() {
  const { data } = useFeed("v1/identity", IDENTITY_EVERY_S);
  return useConnection().isRefused ? null : data;
}

/** Whether the reader may do what needs a permission. */
export const useMay = (permission) => useIdentity()?.permissions.includes(permission) ?? false;

// The dialog is beside the views: what an action changes may take its own button away. Each opening has an object.
const opened = { action: null, redraw: null };

/**
 * A button of those who may do it. It opens a dialog.
 *
 * `needs` is the permission, `label` the button, `title` the dialog's title, `children` say what will happen. `request`
 * is `{method, path, body}`, or makes it from the values of `fields`: null while there is nothing to send, and
 * `missing` says why. `prepare` answers in words what would happen, before it may happen. `perform` sends the request
 * in another way. `done` says what has happened, from the answer. `name` tells equal buttons apart.
 */
export function Action({ needs, label, name, ...action }) {
  if (!useMay(needs)) return null;
  const open = () => {
    opened.action = { label, ...action };
    opened.redraw();
  };
  return html`<button type="button" class="small action" aria-label=${name} onClick=${open}>${label}</button>`;
}

/** The dialog of the action that was chosen, if there is one. */
export function Dialog() {
  opened.redraw = useRedraw();
  const { action } = opened;
  const close = () => {
    if (opened.action !== action) return; // the browser is late to say so: the next dialog is open
    opened.action = null;
    opened.redraw();
  };
  return action && html`<${Chosen} key=${action} action=${action} close=${close} />`;
}

function Chosen({ action, close }) {
  const dialog = useRef(null);
  const form = useRef(null);
  const redraw = useRedraw();
  // What has been asked: `state` is asking, busy, failed or done.
  const [now, setNow] = useState({ state: "asking" });
  useEffect(() => {
    dialog.current.showModal();
    redraw(); // now the form has values
  }, []);
  const values = form.current === null ? {} : Object.fromEntries(new FormData(form.current));
  const request = typeof action.request === "function" ? action.request(values) : action.request;
  const isPrepared = !action.prepare || now.prepared !== undefined;

  const hasChanged = useRef(false); // since the request that is under way
  const change = () => {
    hasChanged.current = true;
    if (now.state === "busy") redraw();
    else setNow({ state: "asking" });
  };
  const act = async (event) => {
    event.preventDefault();
    if (now.state === "busy" || request === null) return;
    setNow({ ...now, state: "busy" });
    hasChanged.current = false;
    try {
      if (!isPrepared) {
        const prepared = await action.prepare(request);
        setNow(hasChanged.current ? { state: "asking" } : { state: "asking", prepared });
        return;
      }
      const answer = await (action.perform ?? send)(request);
      setNow({ state: "done", answer });
      refreshAll();
    } catch (error) {
      setNow({ state: "failed", error });
    }
  };

  return html`<dialog
    ref=${dialog}
    class="action"
    onClose=${close}
    aria-labelledby="action-title"
    aria-describedby="action-words"
  >
    <h2 id="action-title">${action.title}</h2>
    ${
      now.state === "done"
        ? html`<${Done} action=${action} answer=${now.answer} close=${() => dialog.current.close()} />`
        : html`<form ref=${form} onSubmit=${act} onInput=${change}>
            <div id="action-words">${action.children}</div>
            ${action.fields && html`<div class="fields">${action.fields}</div>`}
            ${
              request === null
                ? html`<p class="quiet">${action.missing ?? "Change a value first."}</p>`
                : html`<${Command} name="curl" text=${command(request)} />`
            }
            ${now.prepared !== undefined && html`<p role="status"><strong>${now.prepared}</strong></p>`}
            ${now.state === "failed" && html`<${Failed} error=${now.error} />`}
            <div class="buttons">
              <button type="button" autofocus onClick=${() => dialog.current.close()}>Cancel</button>
              <button type="submit" class="primary" disabled=${now.state === "busy" || request === null}>
                ${isPrepared ? action.label : (action.preparing ?? "Check")}
              </button>
            </div>
          </form>`
    }
  </dialog>`;
}

const command = ({ method, path, body }) => curl(path, body && JSON.stringify(body), method);

function Done({ action, answer, close }) {
  const button = useRef(null);
  useEffect(() => button.current.focus(), []);
  return html`<div role="status">
      ${typeof action.done === "function" ? action.done(answer) : html`<p>${action.done}</p>`}
    </div>
    <div class="buttons"><button ref=${button} type="button" onClick=${close}>Close</button></div>`;
}

function Failed({ error }) {
  const words =
    error instanceof Unreachable
      ? html`<strong>No answer.</strong> It may have happened or not: look before you repeat it.`
      : html`<strong>${shown(error.code)}</strong>: ${shown(error.message, 500)}`;
  return html`<p role="alert" class="failed">${words}</p>`;
}
