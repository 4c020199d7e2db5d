import { render } from "preact";
import { App } from "./app.tsx";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/talk.css";
import "./styles/views.css";

const root = document.getElementById("app");
if (root) render(<App />, root);
