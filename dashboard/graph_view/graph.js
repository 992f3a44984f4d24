// Our side of the graph component. Labels are drawn on a canvas and tooltips set as textContent: no HTML of a log.
// Positions come with the data. A newer set of the same shape changes what differs and nothing else, so that a step
// recolours the map without moving or blinking.
const held = new WeakMap();

function options(theme) {
  return {
    physics: false,
    layout: { improvedLayout: false },
    interaction: {
      hover: true, hideEdgesOnDrag: true, hideEdgesOnZoom: true, dragNodes: false, selectConnectedEdges: false,
      keyboard: false, tooltipDelay: 1e9,
    },
    // What would be too small to read is left out until one zooms in.
    nodes: { shape: "dot", borderWidth: 1, font: fontOf(theme, 13), scaling: { label: { drawThreshold: 9 } } },
    edges: { smooth: false, selectionWidth: 1.5, hoverWidth: 0.5 },
  };
}

function fontOf(theme, size) {
  return { color: theme.text, size, face: theme.font, strokeWidth: 3, strokeColor: theme.background };
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

function nodesOf(data, theme) {
  const n = data.nodes;
  const found = n.id.map((id, i) => ({
    id, x: n.x[i], y: n.y[i], label: n.label[i], size: n.size[i], shape: n.shape[i], opacity: n.faint[i] ? 0.18 : 1,
    borderWidth: n.ring[i] ? data.ring : 1, borderWidthSelected: n.ring[i] ? data.ring : 2,
    color: {
      background: n.fill[i], border: n.ring[i] || theme.text,
      highlight: { background: n.fill[i], border: n.ring[i] || theme.text },
      hover: { background: n.fill[i], border: n.ring[i] || theme.text },
    },
    font: fontOf(theme, n.font[i]),
  }));
  return found.concat(data.captions.map((c, i) => ({
    id: "caption " + i, x: c.x, y: c.y, label: c.text, shape: "text", chosen: false, font: fontOf(theme, c.size),
  })));
}

function edgesOf(data, theme) {
  const e = data.edges, unit = data.unit, dashes = [7 * unit, 5 * unit];
  const found = e.from.map((from, i) => ({
    id: e.id[i], from, to: e.to[i], width: e.width[i] * unit, dashes: e.cross[i] ? dashes : false,
    color: { color: e.colour[i], highlight: e.colour[i], hover: e.colour[i], opacity: e.opacity[i] },
  }));
  return found.concat(data.flow.map((f) => ({
    id: "flow " + f.from, from: f.from, to: f.to, width: f.width * unit, dashes: f.cross ? dashes : false,
    color: { color: f.colour, highlight: f.colour, hover: f.colour, opacity: 1 },
    arrows: { to: { enabled: true, scaleFactor: 0.7 } },
  })));
}

// Make a DataSet hold exactly `items`, touching only those that changed.
function renew(set, seen, items) {
  const wanted = new Map(items.map((item) => [item.id, JSON.stringify(item)]));
  const gone = [...seen.keys()].filter((id) => !wanted.has(id));
  const changed = items.filter((item) => seen.get(item.id) !== wanted.get(item.id));
  if (gone.length) set.remove(gone);
  if (changed.length) set.update(changed);
  return wanted;
}

function tipsOf(data) {
  const tips = new Map(data.nodes.id.map((id, i) => [id, data.nodes.title[i]]));
  data.edges.id.forEach((id, i) => tips.set(id, data.edges.title[i]));
  data.flow.forEach((f) => tips.set("flow " + f.from, f.title));
  return tips;
}

function showTip(map, text, at) {
  if (!text) return;
  map.tip.textContent = text;
  map.tip.style.display = "block";
  const room = map.place.clientWidth - map.tip.offsetWidth - 8;
  map.tip.style.left = Math.max(4, Math.min(at.x + 14, room)) + "px";
  const below = at.y + 16 + map.tip.offsetHeight < map.place.clientHeight;
  map.tip.style.top = Math.max(4, below ? at.y + 16 : at.y - map.tip.offsetHeight - 10) + "px";
}

function listen(map) {
  const { network } = map;
  const hide = () => { map.tip.style.display = "none"; };
  network.on("hoverNode", (event) => showTip(map, map.tips.get(event.node), event.pointer.DOM));
  network.on("hoverEdge", (event) => showTip(map, map.tips.get(event.edge), event.pointer.DOM));
  for (const name of ["blurNode", "blurEdge", "dragStart", "zoom", "click"]) network.on(name, hide);
  network.on("click", (event) => {
    const node = event.nodes[0], edge = event.edges[0];
    if (typeof node === "number") map.send({ node });
    else if (typeof edge === "string" && edge.startsWith("flow ")) map.send({ edge: [Number(edge.slice(5)), map.selected] });
    else if (edge !== undefined) map.send({ edge: edge.split("-").map(Number) });
    else if (map.anything) map.send({ nothing: true });
  });
}

function buttons(map, bar) {
  bar.replaceChildren();
  const add = (text, label, act) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.title = label;
    button.setAttribute("aria-label", label);
    button.onclick = act;
    bar.append(button);
  };
  const zoom = (factor) => map.network.moveTo({ scale: map.network.getScale() * factor });
  add("+", "Zoom in", () => zoom(1.4));
  add("\u2212", "Zoom out", () => zoom(1 / 1.4));
  add("Fit", "Show the whole map", () => map.network.fit({ animation: false }));
}

function begin(place, parent, data, theme) {
  const nodes = new vis.DataSet(), edges = new vis.DataSet();
  const map = { place, nodes, edges, shape: data.shape, tip: parent.querySelector(".tip") };
  const items = nodesOf(data, theme), ties = edgesOf(data, theme);
  map.seenNodes = renew(nodes, new Map(), items);
  map.seenEdges = renew(edges, new Map(), ties);
  map.network = new vis.Network(place, { nodes, edges }, options(theme));
  map.network.once("afterDrawing", () => map.network.fit({ animation: false }));
  listen(map);
  buttons(map, parent.querySelector(".zoom"));
  return map;
}

function select(map, data) {
  map.selected = data.selected;
  map.anything = data.selected !== null || data.selectedEdge !== null;
  const known = data.selectedEdge !== null && map.edges.get(data.selectedEdge) !== null;
  map.network.setSelection(
    { nodes: data.selected === null ? [] : [data.selected], edges: known ? [data.selectedEdge] : [] },
    { highlightEdges: false },
  );
  // Only for a choice from a list: the reader has not pointed at it, and it may be out of sight.
  if (map.looked !== undefined && data.look !== map.looked && data.selected !== null) {
    const at = map.network.canvasToDOM(map.network.getPosition(data.selected));
    const seen = at.x > 0 && at.y > 0 && at.x < map.place.clientWidth && at.y < map.place.clientHeight;
    if (!seen) map.network.moveTo({ position: map.network.getPosition(data.selected) });
  }
  map.looked = data.look;
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const place = parentElement.querySelector(".graph");
  place.style.height = data.height + "px";
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", data.alt);
  const theme = themeOf(place);
  let map = held.get(place);
  if (map && map.shape === data.shape) {
    map.seenNodes = renew(map.nodes, map.seenNodes, nodesOf(data, theme));
    map.seenEdges = renew(map.edges, map.seenEdges, edgesOf(data, theme));
  } else {
    if (map) map.network.destroy();
    map = begin(place, parentElement, data, theme);
    held.set(place, map);
  }
  map.tips = tipsOf(data);
  map.send = (value) => setTriggerValue("clicked", value);
  select(map, data);
  // For tests: where a node, and the middle of an edge, are on the page; what is drawn; and the view.
  place.envschedNodeAt = (id) => map.network.canvasToDOM(map.network.getPosition(id));
  place.envschedMap = map;
  return () => {
    const gone = held.get(place);
    if (gone && !place.isConnected) {
      gone.network.destroy();
      held.delete(place);
    }
  };
}
