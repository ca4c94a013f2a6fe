// Sends the one-time code of `windlass dashboard`, and takes it out of the address first, so that it
// does not stay in the history of the browser. Without JavaScript the reader presses the button.
const form = document.getElementById("one-time-login");
if (form instanceof HTMLFormElement) {
  history.replaceState(null, "", "./login");
  form.requestSubmit();
}
