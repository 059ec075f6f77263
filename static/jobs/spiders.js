// The fields of spider and arguments follow the chosen image and spider.
(() => {
  "use strict";
  const image = document.getElementById("id_image");
  const fields = document.querySelector("[data-arguments]");
  const more = document.querySelector("[data-arguments-more]");
  if (!image || !fields || !document.getElementById("id_spider")) return;
  let asked = 0;

  async function draw() {
    const number = ++asked;
    const spider = document.getElementById("id_spider");
    const query = new URLSearchParams({ image: image.value, spider: spider.value });
    // The form's address ends in add/ or 7/change/.
    const path = location.pathname.replace(/(add|\d+\/change)\/$/, "spiders");
    const answer = await fetch(`${path}?${query}`, { headers: { Accept: "application/json" } });
    if (!answer.ok || number !== asked) return;
    const drawn = await answer.json();
    const box = document.createElement("div");
    box.innerHTML = drawn.spider;
    const fresh = box.querySelector("#id_spider");
    if (fresh && (fresh.tagName === "SELECT" || spider.tagName === "SELECT")) {

      spider.replaceWith(fresh);
      fresh.addEventListener("change", draw);
    }
    fields.innerHTML = drawn.arguments;
    if (more) more.hidden = !drawn.arguments;
  }

  image.addEventListener("change", draw);
  document.getElementById("id_spider").addEventListener("change", draw);
})();
