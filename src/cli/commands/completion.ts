import { Argument, type Command } from 'commander'
import type { CliContext } from '../context.js'
import { exampleText } from './command.js'

export function registerCompletion(program: Command, { output }: CliContext): void {
  program
    .command('completion')
    .description("print a script that completes phaselock's commands and options in your shell")
    .addArgument(new Argument('<shell>', 'where it is to be used').choices(['bash', 'zsh', 'fish']))
    .action((shell: 'bash' | 'zsh' | 'fish') => output.raw(SCRIPTS[shell](placesOf(program))))
    .addHelpText(
      'after',
      exampleText([
        'completion bash >> ~/.bashrc',
        'completion zsh >> ~/.zshrc',
        'completion fish > ~/.config/fish/completions/phaselock.fish',
      ]),
    )
}

/** A point where words can be completed: after these commands. */
interface Place {
  /** `locks release`; empty at the beginning. */
  readonly path: string
  readonly commands: readonly { readonly name: string; readonly about: string }[]
  readonly options: readonly { readonly flag: string; readonly about: string; readonly takesValue: boolean }[]
}

function placesOf(command: Command, path = ''): Place[] {
  const commands = command.commands.map((one) => ({ name: one.name(), about: one.description() }))
  const options = command.options.flatMap(({ long, description, required, hidden }) =>
    long && !hidden ? [{ flag: long, about: description, takesValue: required }] : [],
  )
  const help = { flag: '--help', about: 'print its help', takesValue: false }
  const below = command.commands.flatMap((one) => placesOf(one, `${path} ${one.name()}`.trim()))
  return [{ path, commands, options: [...options, help] }, ...below]
}

const wordsOf = ({ commands, options }: Place): string =>
  [...commands.map(({ name }) => name), ...options.map(({ flag }) => flag)].join(' ')

/** The script for bash, also used for zsh: there `path` is PATH, and a sum in an expansion needs `$((...))`. */
const bash = (places: readonly Place[]): string => `_phaselock() {
  local word next place='' words=''
  for word in "\${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
    next="\${place:+$place }$word"
    case "$next" in
      ${places
        .slice(1)
        .map(({ path }) => `'${path}'`)
        .join('|')}) place="$next" ;;
    esac
  done
  case "$place" in
${places.map((place) => `    '${place.path}') words='${wordsOf(place)}' ;;`).join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _phaselock phaselock
`

const zsh = (places: readonly Place[]): string => `autoload -U +X compinit && compinit
autoload -U +X bashcompinit && bashcompinit
${bash(places)}`

const fish = (places: readonly Place[]): string => {
  const quoted = (text: string) => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`
  const lines = places.flatMap(({ path, commands, options }) => {
    const names = commands.map(({ name }) => name).join(' ')
    const behind = path === '' ? [] : path.split(' ').map((name) => `__fish_seen_subcommand_from ${name}`)
    const notYet = names === '' ? [] : [`not __fish_seen_subcommand_from ${names}`]
    const when = quoted([...behind, ...notYet].join('; and '))
    return [
      ...commands.map(({ name, about }) => `complete -c phaselock -f -n ${when} -a ${name} -d ${quoted(about)}`),
      ...options.map(
        ({ flag, about, takesValue }) =>
          `complete -c phaselock -n ${behind.length > 0 ? quoted(behind.join('; and ')) : when} -l ${flag.slice(2)}${takesValue ? ' -r' : ''} -d ${quoted(about)}`,
      ),
    ]
  })
  return `${lines.join('\n')}\n`
}

const SCRIPTS = { bash, zsh, fish } as const
