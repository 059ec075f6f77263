/* Forms of seeds: a time is asked for only where one is needed, a file shows how far it is. */
(function () {
  "use strict";

  for (const when of document.querySelectorAll("select[name=when]")) {
    const field = when.form.querySelector("[name=not_before]")?.closest(".cy-field");
    const follow = () => {
      if (field) field.hidden = when.value !== "later";
    };
    when.addEventListener("change", follow);
    follow();
  }

  const upload = document.querySelector("form[data-upload]");
  if (upload === null) return;
  const words = upload.dataset;
  const bar = upload.querySelector("progress");
  const said = upload.querySelector("[data-said]");
  const list = upload.querySelector("[data-problems]");
  const button = upload.querySelector("[type=submit]");

  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

  function end(text, bad) {
    said.textContent = text;
    said.dataset.kind = bad ? "bad" : "good";
    bar.hidden = true;
    button.disabled = false;
  }

  function tell(answer) {
    const counts = {};
    for (const name of ["lines", "new", "duplicates", "refused"]) counts[name] = Crawlyard.count(answer[name]);
    end(fill(words.done, counts), answer.refused > 0);
    for (const problem of answer.problems) {
      const line = document.createElement("li");
      line.textContent = fill(words.line, problem);
      list.append(line);
    }
  }

  upload.addEventListener("submit", (event) => {
    event.preventDefault();
    const file = upload.querySelector("[type=file]").files[0];
    list.replaceChildren();
    if (file === undefined) {
      end(words.none, true);
      return;
    }
    if (file.size > Number(words.max)) {
      end(words.tooLarge, true);
      return;
    }
    const packed = /\.gz$/i.test(file.name);
    const isJson = /\.(jsonl|ndjson)(\.gz)?$/i.test(file.name);
    const request = new XMLHttpRequest();
    request.open("POST", words.to);
    request.setRequestHeader("Accept", "application/json");
    request.setRequestHeader("Content-Type", isJson ? "application/x-ndjson" : "text/plain");
    if (packed) request.setRequestHeader("Content-Encoding", "gzip");
    request.setRequestHeader("X-CSRFToken", upload.querySelector("[name=csrfmiddlewaretoken]").value);
    request.responseType = "json";
    request.upload.addEventListener("progress", (progress) => {
      if (progress.lengthComputable) bar.value = progress.loaded / progress.total;
    });
    request.upload.addEventListener("load", () => {
      // How long the rest takes nobody knows.
      bar.removeAttribute("value");
      said.textContent = words.working;
    });
    request.addEventListener("load", () => {
      const answer = request.response;
      if (request.status === 200 && answer) tell(answer);
      else end((answer && answer.detail) || words.failed, true);
    });
    request.addEventListener("error", () => end(words.failed, true));
    bar.hidden = false;
    bar.value = 0;
    button.disabled = true;
    said.dataset.kind = "";
    said.textContent = words.sending;
    // The file itself: nothing of it is held here.
    request.send(file);
  });
})();
