// Our side of the graph component. Labels are drawn on a canvas and tooltips set as textContent: no HTML of a log.
const networks = new WeakMap();

function tooltip(text) {
  const box = document.createElement("div");
  box.textContent = text;
  return box;
}

function options(theme) {
  return {
    physics: false,
    layout: { improvedLayout: false },
    interaction: { hover: true, hideEdgesOnDrag: true, hideEdgesOnZoom: true, tooltipDelay: 120, keyboard: false },
    nodes: { shape: "dot", borderWidth: 1, font: { color: theme.text, size: 13, face: theme.font, strokeWidth: 3, strokeColor: theme.background } },
    edges: { smooth: false, selectionWidth: 1.5, hoverWidth: 0.5 },
  };
}

function themeOf(element) {
  const style = getComputedStyle(element);
  const value = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  return {
    text: value("--st-text-color", "#1b2430"),
    background: value("--st-background-color", "#ffffff"),
    font: value("--st-font", "sans-serif"),
  };
}

function nodeOf(n, theme) {
  return {
    id: n.id, x: n.x, y: n.y, label: n.label, size: n.size, title: tooltip(n.title), shape: n.shape,
    borderWidth: n.ring ? 4 : 1,
    color: {
      background: n.colour, border: n.ring || theme.text,
      highlight: { background: n.colour, border: theme.text }, hover: { background: n.colour, border: theme.text },
    },
  };
}

function captionOf(c, i, theme) {
  return { id: "caption " + i, x: c.x, y: c.y, label: c.text, shape: "text", chosen: false,
           font: { size: 20, color: theme.text, face: theme.font, strokeWidth: 4, strokeColor: theme.background } };
}

function edgeOf(e, i) {
  return { id: i, from: e.from, to: e.to, width: e.width, dashes: e.cross ? [7, 5] : false, title: tooltip(e.title),
           color: { color: e.colour, highlight: e.colour, hover: e.colour, opacity: e.opacity } };
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const place = parentElement.querySelector(".graph");
  place.style.height = data.height + "px";
  const theme = themeOf(place);
  const nodes = new vis.DataSet(data.nodes.map((n) => nodeOf(n, theme)));
  nodes.add(data.captions.map((c, i) => captionOf(c, i, theme)));
  const edges = new vis.DataSet(data.edges.map(edgeOf));
  let held = networks.get(place);
  if (held && held.shape === data.shape) {
    held.network.setOptions(options(theme));
    const view = { position: held.network.getViewPosition(), scale: held.network.getScale() };
    held.network.setData({ nodes, edges });
    held.network.moveTo(view);
  } else {
    if (held) held.network.destroy();
    const network = new vis.Network(place, { nodes, edges }, options(theme));
    held = { network, shape: data.shape };
    networks.set(place, held);
    network.once("afterDrawing", () => network.fit({ animation: false }));
  }
  held.network.off("click");
  held.network.on("click", (event) => {
    if (typeof event.nodes[0] === "number") setTriggerValue("clicked", event.nodes[0]);
  });
  // For a keyboard and for tests: the position of a node on the page.
  place.envschedNodeAt = (id) => held.network.canvasToDOM(held.network.getPosition(id));
  return () => {
    const gone = networks.get(place);
    if (gone && !place.isConnected) {
      gone.network.destroy();
      networks.delete(place);
    }
  };
}
