/** Installs what tests and the demo use of Python's package index, unless it is there: Qdrant's engine and the table of wordllama. */
import { installWordllama } from '../embeddings/wordllama.mjs'
import { installQdrant } from './qdrant.mjs'

for (const install of [installQdrant, installWordllama]) console.log((await install()).folder)
