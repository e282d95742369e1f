// Figures are drawn when their section is first shown: a hidden one has no width.
"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = CONFIG;
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const narrow = window.matchMedia("(max-width: 640px)").matches;
  if (narrow) config.displayModeBar = false;
  function draw(element) {
    if (element.dataset.drawn) { Plotly.Plots.resize(element); return; }
    element.dataset.drawn = "yes";
    const figure = figures[element.dataset.figure];
    if (dark) {
      const ink = "#d5dce4", rule = "#333d49", paper = "#1b2128", layout = figure.layout;
      Object.assign(layout, { paper_bgcolor: paper, plot_bgcolor: paper });
      layout.font.color = ink;
      layout.hoverlabel = { bgcolor: "#27303a", align: "left", font: { size: 12.5, color: ink } };
      for (const key of Object.keys(layout).filter((name) => /^[xy]axis/.test(name))) {
        Object.assign(layout[key], { gridcolor: rule, linecolor: "#56616e", tickcolor: "#56616e" });
        if (layout[key].zeroline) layout[key].zerolinecolor = ink;
      }
      for (const trace of figure.data) for (const part of [trace, trace.line, trace.marker, trace.error_y]) {
        if (part && (part.color === "#000000" || part.color === "#1c2733")) part.color = ink;
      }
      for (const shape of layout.shapes) {
        if (shape.type === "rect") shape.fillcolor = "#27303a"; else shape.line.color = ink;
      }
    }
    if (narrow) {
      figure.layout.margin = { l: 48, r: 8, t: 40, b: 44 };
      figure.layout.font.size = 11;
      if (figure.layout.legend.y < 0) figure.layout.height += 17 * figure.data.filter((t) => t.showlegend).length;
      for (const { colorbar } of figure.data.flatMap((trace) => [trace, trace.marker || {}])) if (colorbar) {
        Object.assign(colorbar, { orientation: "h", y: -0.16, yanchor: "top", x: 0.5, len: 1 });
        Object.assign(colorbar.title, { side: "top", text: colorbar.title.text.replace("<br>", " ") });
      }
    }
    Plotly.newPlot(element, figure.data, figure.layout, config);
  }
  function select(tab) {
    for (const each of tabs) {
      const on = each === tab;
      each.setAttribute("aria-selected", on);
      each.tabIndex = on ? 0 : -1;
      document.getElementById(each.getAttribute("aria-controls")).classList.toggle("on", on);
    }
    const list = tab.parentElement;
    list.scrollLeft = tab.offsetLeft - list.offsetLeft - (list.clientWidth - tab.offsetWidth) / 2;
    document.querySelectorAll("section.on [data-figure]").forEach(draw);
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
