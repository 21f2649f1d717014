import type { Logger } from 'phaselock'

/** Warnings and errors on standard error. */
export const warnings: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: (message) => void process.stderr.write(`phaselock-state warn: ${message}\n`),
  error: (message) => void process.stderr.write(`phaselock-state error: ${message}\n`),
}
