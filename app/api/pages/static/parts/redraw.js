// Drawings have the colours of the theme and the size of their place. Both change while the page is open.

/** The value of a colour of the theme now. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/**
 * Call `draw` now, for each other theme and for paper, which is light, and `resize` for each other size. Return what
 * ends that.
 */
export function redrawn(element, draw, resize = draw) {
  draw();
  const themes = ["(prefers-color-scheme: dark)", "print"].map((one) => matchMedia(one));
  const sizes = new ResizeObserver(resize);
  sizes.observe(element);
  for (const theme of themes) theme.addEventListener("change", draw);
  addEventListener("lachesis-theme", draw);
  return () => {
    sizes.disconnect();
    for (const theme of themes) theme.removeEventListener("change", draw);
    removeEventListener("lachesis-theme", draw);
  };
}
