// Start Swagger UI on the page /docs. A file of its own: the page's policy forbids scripts inside HTML.
const dark = matchMedia("(prefers-color-scheme: dark)");

// Use the theme that the reader chose on the operators' page, or else that of the system.
function setTheme() {
  let chosen = null;
  try {
    chosen = localStorage.getItem("lachesis.theme");
  } catch {} // the reader blocks storage
  document.documentElement.classList.toggle("dark-mode", chosen === "dark" || (chosen !== "light" && dark.matches));
}

setTheme();
dark.addEventListener("change", setTheme);
window.addEventListener("load", () => {
  window.ui = SwaggerUIBundle({
    url: "openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    validatorUrl: null,
  });
});
