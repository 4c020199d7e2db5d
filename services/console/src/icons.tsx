// Icons as SVG, drawn on a grid of 24 with lines of 1.75. A button names itself, so they are hidden from screen readers.
import type { JSX } from "preact";

const PATHS = {
  talk: "M21 12a8 8 0 0 1-8 8H4l2.2-3A8 8 0 1 1 21 12Z",
  memory: "M4 6h16M4 12h10M4 18h13",
  people: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM2.5 20c.5-3.6 3-5.5 6.500-5.500s6 1.900 6.500 5.500M16 4.500a3.500 3.500 0 0 1 0 6.300M18 15c2 .800 3.200 2.500 3.500 5",
  server: "M4 5h16v6H4zM4 13h16v6H4zM7.500 8h.01M7.500 16h.01",
  windows: "M5 20V10M12 20V4M19 20v-7",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.500v5M9 14.500v5",
  plus: "M12 5v14M5 12h14",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM20 20l-4-4",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  mic: "M12 15a3.500 3.500 0 0 0 3.500-3.500v-4a3.500 3.500 0 0 0-7 0v4A3.500 3.500 0 0 0 12 15ZM5.500 11.500a6.500 6.500 0 0 0 13 0M12 18v3",
  up: "M7 11v9H4v-9zM7 11l4-8c1.500 0 2.500 1 2.500 2.500V9h5a2 2 0 0 1 2 2.300l-1.200 7A2 2 0 0 1 17.300 20H7",
  down: "M17 13V4h3v9zM17 13l-4 8c-1.500 0-2.500-1-2.500-2.500V15h-5a2 2 0 0 1-2-2.300l1.200-7A2 2 0 0 1 6.700 4H17",
  again: "M20 11a8 8 0 1 0-.500 4M20 5v6h-6",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  speak: "M4 10v4h3l5 4V6l-5 4zM16 9a4 4 0 0 1 0 6M18.500 6.500a8 8 0 0 1 0 11",
  quiet: "M4 10v4h3l5 4V6l-5 4zM16 10l5 5M21 10l-5 5",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13",
  down_file: "M12 4v11M7 11l5 5 5-5M5 20h14",
  up_file: "M12 16V5M7 9l5-5 5 5M5 20h14",
  close: "M6 6l12 12M18 6 6 18",
  menu: "M4 7h16M4 12h16M4 17h16",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  undo: "M9 14 4 9l5-5M4 9h10a6 6 0 0 1 0 12h-3",
  key: "M15 9a4 4 0 1 0-3.500 4L4 20.500V17h3v-3h3l1.500-1.500M16 8h.01",
  check: "M5 12.500 10 17 19 7",
  chevron: "M9 6l6 6-6 6",
} satisfies Record<string, string>;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 20 }: { name: IconName; size?: number }): JSX.Element {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
