import { renderMermaidSVG } from 'beautiful-mermaid'
import { defineConfig } from 'vitepress'
import { anchorOf } from '../anchors.ts'
import { readSidebar } from '../pages.ts'

/** A diagram as SVG in the colours of the page, light or dark, without the fonts of other hosts that it asks for. */
const diagram = (text: string) =>
  renderMermaidSVG(text, {
    bg: 'var(--vp-c-bg)',
    fg: 'var(--vp-c-text-1)',
    font: 'inherit',
    transparent: true,
  }).replace(/@import url\([^)]*\);/g, '')

export default defineConfig({
  title: 'Phaselock',
  description: 'Takes MongoDB documents through their lifecycles, step by step, with any number of equal replicas.',
  lang: 'en',
  srcDir: 'dist/pages',
  outDir: 'dist/site',
  cacheDir: 'dist/cache',
  // The browser holds the promise too: nothing is loaded from other hosts.
  head: [['meta', { 'http-equiv': 'Content-Security-Policy', content: "default-src 'self' 'unsafe-inline' data:" }]],
  markdown: {
    languageAlias: { cjs: 'javascript', mjs: 'javascript' },
    anchor: { slugify: anchorOf },
    config(md) {
      const fence = md.renderer.rules.fence!
      md.renderer.rules.fence = (tokens, at, ...rest) =>
        tokens[at]!.info.trim() === 'mermaid'
          ? `<div class="diagram" v-pre>${diagram(tokens[at]!.content)}</div>`
          : fence(tokens, at, ...rest)
    },
  },
  themeConfig: {
    nav: [
      { text: 'Documentation', link: '/docs/' },
      { text: 'API', link: '/api/' },
    ],
    sidebar: (await readSidebar()).map((group) => ({ ...group, items: [...group.items], collapsed: false })),
    outline: [2, 3],
    search: { provider: 'local' },
  },
})
