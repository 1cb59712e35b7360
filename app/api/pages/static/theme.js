// Sets the theme before anything is drawn. It is not a module, so that it runs at once.
"use strict";
(() => {
  const chosen = localStorage.getItem("lachesis.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
