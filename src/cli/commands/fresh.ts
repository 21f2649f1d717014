import type { Command } from 'commander'

/** Adds `--fresh`. */
export const freshOption = (command: Command): Command =>
  command.option('--fresh', 'count now, instead of showing what a replica counted last; it reads what a census reads')
