// A link to a parameter or an attribute opens the row that it is in, and a printed page has all rows open.
function openTarget() {
  let place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (place = place?.closest("details"); place; place = place.parentElement.closest("details")) place.open = true;
}
addEventListener("hashchange", openTarget);
addEventListener("DOMContentLoaded", openTarget);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
