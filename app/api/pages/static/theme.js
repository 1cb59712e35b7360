// Sets the theme before anything is drawn, and when the reader chooses another. It is not a module, so it runs at once.
"use strict";
(() => {
  // What is printed is light.
  const CONDITIONS = { light: "not all", dark: "screen", system: "(prefers-color-scheme: dark)" };
  const [sheet] = document.styleSheets;
  const dark = [...sheet.cssRules].find((rule) => rule.media?.mediaText === CONDITIONS.system);
  const set = (theme) => {
    dark.media.mediaText = CONDITIONS[theme] ?? CONDITIONS.system;
  };
  addEventListener("lachesis-theme", (event) => set(event.detail));
  try {
    set(localStorage.getItem("lachesis.theme"));
  } catch {
    set("system"); // the reader blocks storage
  }
})();
