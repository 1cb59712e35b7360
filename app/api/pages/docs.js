// Start Swagger UI on the page /docs. A file of its own: the page's policy forbids scripts inside HTML.
window.addEventListener("load", () => {
  window.ui = SwaggerUIBundle({
    url: "openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    validatorUrl: null,
  });
});
