/**
 * `npm run demo`: the demo of the package, or with `--proof` the run that proves what the demo shows, with `--sync` the demo of repositories that are
 * kept in sync (docs/demo.md).
 */
if (process.argv.includes('--proof')) await import('./proof/main.ts')
else if (process.argv.includes('--sync')) await import('./sync/main.ts')
else {
  process.argv.splice(2, 0, 'demo')
  await import('../dist/cli/main.js')
}
