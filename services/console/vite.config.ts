import { defineConfig } from "vite";

// Names without hashes: the files are inside the binary, and the service lets no browser keep them.
export default defineConfig({
  base: "/console/",
  build: {
    outDir: "built",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rolldownOptions: {
      output: { entryFileNames: "app.js", assetFileNames: "app.[ext]", codeSplitting: false },
    },
  },
});
