// Loaded before the page is drawn, so that it never flashes in the other colours. Not a module for that reason.
"use strict";
(() => {
  const KEY = "runjournal-theme", THEMES = ["auto", "light", "dark"];
  const read = () => {
    try {
      return THEMES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "auto";
    } catch {
      return "auto"; // storage may be forbidden
    }
  };
  const apply = (theme) => {
    document.documentElement.dataset.theme = theme;
  };
  apply(read());
  addEventListener("storage", (event) => {
    if (event.key === KEY) apply(read());
  });
  /** Change to the next theme, and return its name; without an argument that is true, only return it. */
  globalThis.theme = (isNext) => {
    const now = document.documentElement.dataset.theme;
    if (!isNext) return now;
    const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // it holds until the page is loaded again
    }
    apply(next);
    return next;
  };
})();
