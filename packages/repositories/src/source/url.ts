import { SourceProblem, UnsafeUrl } from './errors.js'

/** A checked URL, as it is passed to git and shown to people. */
export interface SourceUrl {
  readonly text: string
  readonly kind: 'http' | 'ssh' | 'path'
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is refused
const CONTROL = /[\x00-\x20\x7f]/
const SCP = /^(?:[\w.][\w.-]*@)?[\w.][\w.-]*:(?![:/\\])[^-:]/
const HOST = /^[\w[\](.:)]/

/**
 * Checks a repository's URL before git gets it. Only https, http, ssh and absolute paths are let through: git runs a program for `ext::`,
 * reads an option in what begins with `-`, and ssh does both for a host.
 * @throws UnsafeUrl
 * @example sourceUrl('https://gitlab.example/group/project.git').kind // 'http'
 */
export function sourceUrl(given: unknown): SourceUrl {
  if (typeof given !== 'string' || given === '') throw new UnsafeUrl('the URL is missing')
  const text = given
  if (text.length > 2_000) throw new UnsafeUrl(`the URL has ${text.length} characters; at most 2000 are taken`)
  if (text.startsWith('-')) throw new UnsafeUrl("the URL begins with '-', which git would read as an option")
  if (!text.isWellFormed()) throw new UnsafeUrl('the URL contains half a character (a lone surrogate)')
  if (text.includes('::')) {
    // An IPv6 address is the only place of two colons in a URL.
    if (!/^(https?|ssh):\/\/[^/]*\[[0-9a-f:.]+\]/i.test(text))
      throw new UnsafeUrl("the URL names one of git's remote helpers ('::'), which run programs")
  }
  if (text.startsWith('/')) {
    if (/[\0\r\n]/.test(text)) throw new UnsafeUrl('the path contains a line end or NUL')
    return { text, kind: 'path' }
  }
  if (CONTROL.test(text)) throw new UnsafeUrl('the URL contains a space or a control character')
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(text)?.[1]?.toLowerCase()
  if (scheme === undefined) {
    if (SCP.test(text)) return { text, kind: 'ssh' }
    throw new UnsafeUrl('the URL has no scheme, and is no absolute path')
  }
  if (scheme !== 'https' && scheme !== 'http' && scheme !== 'ssh') throw new UnsafeUrl(`the URL's scheme is ${scheme}`)
  return { text, kind: checkedAuthority(text, scheme) }
}

function checkedAuthority(text: string, scheme: 'https' | 'http' | 'ssh'): 'http' | 'ssh' {
  const url = URL.parse(text)
  if (!url?.hostname) throw new UnsafeUrl('the URL has no host')
  const host = text.slice(scheme.length + 3).replace(/^[^/@]*@/, '')
  if (!HOST.test(host) || url.username.startsWith('-'))
    throw new UnsafeUrl("the URL's host or user begins with a character that ssh would read as an option")
  const hasPassword = url.password !== '' || (scheme !== 'ssh' && url.username !== '')
  if (hasPassword) throw new UnsafeUrl('the URL contains a user or a password: give them as credentials instead')
  if (url.search !== '' || url.hash !== '') throw new UnsafeUrl("the URL contains '?' or '#'")
  if (url.pathname.length < 2) throw new UnsafeUrl('the URL has no path')
  return scheme === 'ssh' ? 'ssh' : 'http'
}

const NOT_IN_A_REF = /[\p{Cc} ~^:?*[\\]|\.\.|@\{|\/\/|(^|\/)\.|\.lock(\/|$)|\.$|\/$|^\/|^-|^@$/u

/** Checks if git accepts this as the name of a branch (`git check-ref-format --branch`). A name that it refuses is passed to no command. */
export const isBranchName = (name: string): boolean =>
  name !== '' && name.length <= 250 && name.isWellFormed() && !NOT_IN_A_REF.test(name)

/** Checks if an error needs a person: a later try alone changes nothing. */
export const isSourceProblem = (error: unknown): error is SourceProblem => error instanceof SourceProblem
