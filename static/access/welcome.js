/* The key of a link stands behind the # of its address, where no server sees it; hand it in. */
(function () {
  "use strict";

  const form = document.querySelector("form[data-welcome]");
  const key = window.location.hash.slice(1);
  if (!form || !key) return;
  window.history.replaceState(null, "", window.location.pathname);
  form.elements.key.value = key;
  form.submit();
})();
