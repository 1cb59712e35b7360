// Drawings have the colours of the theme and the size of their place. Both change while the page is open.

/** The value of a colour of the theme now. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Call `draw` now and for each other theme, and `resize` for each other size. Return what ends that. */
export function redrawn(element, draw, resize = draw) {
  draw();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const sizes = new ResizeObserver(resize);
  sizes.observe(element);
  dark.addEventListener("change", draw);
  addEventListener("lachesis-theme", draw);
  return () => {
    sizes.disconnect();
    dark.removeEventListener("change", draw);
    removeEventListener("lachesis-theme", draw);
  };
}
