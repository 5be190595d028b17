// Pictures open at their full size.
addEventListener("DOMContentLoaded", () => {
  for (const picture of document.querySelectorAll('.bd-article img[src*="_images/"]:not([src*="_thumb."])')) {
    if (picture.closest("a")) continue;
    const link = Object.assign(document.createElement("a"), { href: picture.src });
    picture.replaceWith(link);
    link.append(picture);
  }
});
