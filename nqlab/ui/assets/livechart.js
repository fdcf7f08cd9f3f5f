// A Plotly chart that is updated in place: one node for the life of the page, so that zoom and hidden traces stay.
// The figure comes as JSON in `data`; colours of text and grid come from the page's theme.

let library;

function plotly() {
  library ??= new Promise((resolve, reject) => {
    if (window.Plotly) return resolve(window.Plotly);
    const script = document.createElement("script");
    script.src = new URL("./plotly.min.js", import.meta.url).href;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("plotly.min.js could not be loaded"));
    document.head.append(script);
  });
  return library;
}

function themed(layout, node) {
  const css = getComputedStyle(node);
  const text = css.getPropertyValue("--st-text-color").trim() || css.color;
  const back = css.getPropertyValue("--st-background-color").trim() || "#ffffff";
  const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16; // large type for a projector
  const grid = "rgba(128, 128, 128, 0.25)";
  const axis = { gridcolor: grid, linecolor: grid, zerolinecolor: grid, automargin: true };
  return {
    ...layout,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: text, family: css.fontFamily, size: 13 * scale },
    hoverlabel: { bgcolor: back, bordercolor: grid, font: { color: text } },
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
  };
}

async function draw(node) {
  if (node.drawing) return;
  node.drawing = true;
  try {
    const Plotly = await plotly();
    while (node.pending) {
      const figure = JSON.parse(node.pending);
      node.pending = null;
      await Plotly.react(node, figure.data, themed(figure.layout, node), {
        responsive: true,
        displaylogo: false,
        showSendToCloud: false, // nothing leaves this page
      });
      node.dataset.draws = String(Number(node.dataset.draws || 0) + 1);
    }
  } catch (error) {
    node.textContent = `The chart could not be drawn: ${error.message}. The table below has the numbers.`;
  } finally {
    node.drawing = false;
  }
}

export default function ({ data, parentElement }) {
  let node = parentElement.querySelector(".nqlab-livechart");
  if (!node) {
    node = document.createElement("div");
    node.className = "nqlab-livechart";
    node.style.width = "100%";
    node.setAttribute("role", "img");
    parentElement.append(node);
  }
  node.setAttribute("aria-label", data.label);
  node.style.minHeight = `${data.height}px`;
  node.pending = data.figure;
  draw(node);
}
