/**
 * The layers of src, from the top down (drawn in CONTRIBUTING.md): imports go down only, siblings don't import each other, and a
 * folder is used from outside through its index.ts only.
 */
const LAYERS = [
  ['cli'],
  ['nest'],
  ['tasks'],
  ['telemetry'],
  ['operations'],
  ['schedules', 'kubernetes'],
  ['testing'],
  ['phases'],
  ['doorbell', 'locks'],
  ['lock'],
  ['database'],
  ['config'],
  ['options'],
  ['time', 'decorated', 'observers', 'concurrency'],
]

/**
 * The rooms of a folder, from its top down: a room imports rooms of the lines below it, never one of its own line or above. Files beside
 * the rooms are the folder's top: they may import every room, and no room imports them.
 */
const ROOMS = {
  'src/tasks': [['api-gateway'], ['runtime-domain'], ['kit']],
  'src/operations': [['status'], ['causes'], ['check', 'pauses'], ['bulk'], ['why'], ['act'], ['inspect'], ['system']],
  'src/kubernetes': [['recovery', 'regions'], ['orphans', 'watch'], ['cluster'], ['readiness'], ['api']],
  'src/schedules': [['definition'], ['cron']],
  'src/phases': [
    ['engine', 'flows'],
    ['definition'],
    ['owner', 'threads'],
    ['step', 'background', 'events', 'census'],
    ['model'],
    ['outcome'],
    ['reporting'],
    ['errors'],
  ],
  'src/phases/engine': [
    ['tick'],
    ['lifecycle'],
    ['callbacks'],
    ['claim', 'renew', 'record'],
    ['run', 'start'],
    ['context'],
    ['wake'],
    ['lease', 'options'],
    ['limits', 'concurrency', 'registry'],
  ],
  'src/lock': [
    ['setup'],
    ['look'],
    ['move'],
    ['claim', 'end'],
    ['candidates', 'outbox', 'limits'],
    ['repair', 'record', 'registry'],
    ['lease', 'select'],
    ['documents'],
    ['terms'],
  ],
}

module.exports = { LAYERS, ROOMS }
