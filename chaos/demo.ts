/** `npm run demo`: the demo of the package, or with `--proof` the run that proves what the demo shows (docs/demo.md). */
if (process.argv.includes('--proof')) await import('./proof/main.ts')
else {
  process.argv.splice(2, 0, 'demo')
  await import('../dist/cli/main.js')
}
