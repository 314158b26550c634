// The colours of the drawings, from the style sheet, in `ink`; a change of the theme reads them again.

const ink = { protocol: [], wait: [], phase: {} };
/// Colours of the classes as pixels of an image.
const pixels = { protocol: [], wait: [] };

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  ink.protocol = PROTOCOLS.map((_, place) => of(`protocol-${place}`));
  ink.wait = WAITS.map((_, place) => of(`wait-${place}`));
  for (const phase of ["prepare", "wait", "finish", "untold"]) ink.phase[phase] = of(`phase-${phase}`);
  for (const name of ["paper", "panel", "line", "grid", "row", "text", "soft", "faint", "accent", "chosen", "mark", "bar", "calls", "searches"]) ink[name] = of(name);
  pixels.protocol = ink.protocol.map(pixel);
  pixels.wait = ink.wait.map(pixel);
}

/// Converts `#rrggbb` to the four bytes of a pixel, the low one first.
function pixel(colour) {
  const number = parseInt(colour.slice(1), 16);
  return (0xff000000 | ((number & 0xff) << 16) | (number & 0xff00) | (number >> 16)) >>> 0;
}

/// By colouring: the class of a message, its colours and names.
const schemes = {
  protocol: { of: (place) => messages.protocol[place], names: PROTOCOLS, means: PROTOCOL_MEANS },
  wait: { of: (place) => messages.wait[place], names: WAITS, means: WAIT_MEANS },
};

const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';

/// Clears a canvas, with the size at which it is shown and a unit of one CSS pixel.
function prepared(canvas) {
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.fillStyle = ink.paper;
  pen.fillRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  pen.lineWidth = 1;
  return { pen, width, height, scale };
}
