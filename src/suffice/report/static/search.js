// One section at a time, chosen by tabs.
"use strict";
(() => {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  function select(tab) {
    for (const each of tabs) {
      const on = each === tab;
      each.setAttribute("aria-selected", on);
      each.tabIndex = on ? 0 : -1;
      document.getElementById(each.getAttribute("aria-controls")).classList.toggle("on", on);
    }
    const list = tab.parentElement;
    list.scrollLeft = tab.offsetLeft - list.offsetLeft - (list.clientWidth - tab.offsetWidth) / 2;
  }
  tabs.forEach((tab, k) => {
    tab.addEventListener("click", () => {
      select(tab);
      history.replaceState(null, "", "#" + tab.getAttribute("aria-controls"));
    });
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) { const next = tabs[(k + step + tabs.length) % tabs.length]; next.focus(); next.click(); }
    });
  });
  document.body.classList.add("scripted");
  select(tabs.find((tab) => "#" + tab.getAttribute("aria-controls") === location.hash) || tabs[0]);
})();
