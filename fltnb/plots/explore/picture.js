// A picture of clients: the nearest one is named under the pointer and picked by a click; red frames mark the picked one.
function render({ model, el }) {
  const box = document.createElement("div");
  const img = new Image();
  box.className = "fltnb-explorer";
  box.style.cssText = "position: relative; display: inline-block; cursor: crosshair; line-height: 0";
  img.style.maxWidth = "100%";
  box.append(img);
  el.append(box);
  let spots = []; // client, left, top, right, bottom: shares of the picture's width and height

  const nearest = (event) => {
    const frame = img.getBoundingClientRect();
    const x = (event.clientX - frame.left) / frame.width, y = (event.clientY - frame.top) / frame.height;
    let best = -1, least = 30; // pixels
    for (let at = 0; at < spots.length; at += 5) {
      const [client, left, top, right, bottom] = spots.subarray(at, at + 5);
      const off = Math.hypot(frame.width * Math.max(left - x, 0, x - right), frame.height * Math.max(top - y, 0, y - bottom));
      if (off < least) [best, least] = [client, off];
    }
    return best;
  };
  const mark = () => {
    box.querySelectorAll("i").forEach((old) => old.remove());
    for (let at = 0; at < spots.length; at += 5) {
      const [client, left, top, right, bottom] = spots.subarray(at, at + 5);
      if (client !== model.get("client")) continue;
      const one = document.createElement("i");
      one.style.cssText = `position: absolute; pointer-events: none; border: 2px solid #d00; border-radius: 7px;
        box-sizing: border-box; left: calc(${100 * left}% - 6px); top: calc(${100 * top}% - 6px);
        width: calc(${100 * (right - left)}% + 12px); height: calc(${100 * (bottom - top)}% + 12px)`;
      box.append(one);
    }
  };
  const draw = () => {
    const { buffer, byteOffset, byteLength } = model.get("spots");
    spots = new Float32Array(buffer.slice(byteOffset, byteOffset + byteLength));
    const old = img.src;
    img.src = URL.createObjectURL(new Blob([model.get("png")], { type: "image/png" }));
    if (old) URL.revokeObjectURL(old);
    mark();
  };
  img.onclick = (event) => {
    const client = nearest(event);
    if (client >= 0) { model.set("client", client); model.save_changes(); }
  };
  img.onmousemove = (event) => { const client = nearest(event); img.title = client < 0 ? "" : `client ${client}`; };
  model.on("change:png", draw);
  model.on("change:client", mark);
  draw();
}
export default { render };
