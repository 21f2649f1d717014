import { spawn } from 'node:child_process'

/**
 * Ends the server and removes its folder when this process is gone, however it went (`kill -9` too): a shell that reads
 * the server's process id from a pipe and acts when the pipe closes.
 *
 * - The last line read has the processes to end; an empty one means that none runs.
 * - It has a session of its own, so Ctrl-C in a terminal reaches it only by the pipe.
 */
const PROGRAM = `
pids=
while read -r line; do pids=$line; done
trap '' HUP INT TERM
for pid in $pids; do kill -"$2" "$pid" 2>/dev/null; done
tries=0
for pid in $pids; do
  while kill -0 "$pid" 2>/dev/null && [ $tries -lt 50 ]; do tries=$((tries + 1)); sleep 0.1; done
  kill -KILL "$pid" 2>/dev/null
done
rm -rf -- "$1"
`

/** @param folder removed at the end @param signal ends the server at once and lets it clean up after itself */
export function guardFolder(folder, signal) {
  const shell = spawn('/bin/sh', ['-c', PROGRAM, 'guard', folder, signal.replace('SIG', '')], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
    cwd: '/',
  })
  shell.stdin.on('error', () => undefined)
  shell.unref()
  shell.stdin.unref()
  const ended = new Promise((resolve) => shell.once('exit', resolve))
  return {
    /** From now on these are the processes to end, and no others. */
    watch: (...pids) => shell.stdin.write(`${pids.filter(Boolean).join(' ')}\n`),
    /** Ends what is watched, removes the folder. */
    async release() {
      shell.ref()
      shell.stdin.end()
      await ended
    },
  }
}
