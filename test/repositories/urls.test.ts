import { expect, test } from '@jest/globals'
import {
  fixedToken,
  GitCache,
  gitlabSource,
  gitSource,
  isBranchName,
  sourceUrl,
  UnsafeUrl,
} from 'phaselock-repositories'

test.each([
  ['https://gitlab.example/group/project.git', 'http'],
  ['http://127.0.0.1:8080/a', 'http'],
  ['https://[2001:db8::1]/a.git', 'http'],
  ['ssh://git@host:2222/a.git', 'ssh'],
  ['git@github.com:owner/name.git', 'ssh'],
  ['host:path/to.git', 'ssh'],
  ['/srv/git/a b.git', 'path'],
])('%s', (url, kind) => {
  expect(sourceUrl(url)).toEqual({ text: url, kind })
})

test.each([
  'ext::sh -c touch% /tmp/owned',
  'fd::17/foo',
  'EXT::x',
  'https::https://host/a',
  '--upload-pack=touch /tmp/owned',
  '-oProxyCommand=x',
  'ssh://-oProxyCommand=x/a',
  'ssh://git@-oProxyCommand=x/a',
  'ssh://-oProxyCommand=x@host/a',
  '-oProxyCommand=x:a',
  'host:-x',
  'user@-host:a',
  'git://host/a',
  'ftp://host/a',
  'file:///etc',
  'relative/path',
  './a',
  '../a',
  'https://host',
  'https://host/',
  'https://host/a?x=1',
  'https://host/a#b',
  'https://host/a b',
  'https://host/a\n',
  'https://host/a\0',
  '/srv/a\nb',
  'https://\ud800/a',
  'https:///a',
  'https://-x/a',
  'C:\\git\\a',
  '\\\\server\\share',
  '',
  `https://host/${'a'.repeat(2_000)}`,
  undefined,
  7,
  { toString: () => 'https://host/a' },
])('refused: %j', (url) => {
  expect(() => sourceUrl(url)).toThrow(UnsafeUrl)
})

test.each(['https://user:glpat-secret@host/a.git', 'https://glpat-secret@host/a.git', 'ssh://git:glpat-secret@host/a'])(
  'a password in a URL is refused, and never repeated: %#',
  (url) => {
    let message = ''
    try {
      gitSource({ url, cache: new GitCache() })
    } catch (error) {
      message = String(error)
    }
    expect(message).toMatch(/^UnsafeUrl: .*credentials/)
    expect(message).not.toContain('secret')
  },
)

test('a GitLab source takes the web URL only, and each source its own settings only', () => {
  expect(() => gitlabSource({ url: 'git@gitlab.example:a/b.git' })).toThrow(UnsafeUrl)
  expect(() => gitlabSource({ url: 'https://gitlab.example/a/b', tokn: 'x' } as never)).toThrow(
    "unknown option 'tokn'; known: url, credentials, api",
  )
  expect(() => gitSource({ url: 'https://gitlab.example/a/b', cache: {} } as never)).toThrow('GitCache')
})

test.each(['main', 'feature/x-1', '한국어', 'release-1.2', 'a@b', 'HEAD'])('a branch may be called %s', (name) => {
  expect(isBranchName(name)).toBe(true)
})

test.each([
  '',
  '-x',
  '--upload-pack=x',
  'a..b',
  'a b',
  'a~1',
  'a^',
  'a:b',
  'a?',
  'a*',
  '[a',
  'a\\b',
  '/a',
  'a/',
  'a//b',
  '.a',
  'a/.b',
  'a.lock',
  'a.',
  'a@{1}',
  '@',
  'a\n',
  '\ud800',
])('no branch is called %j', (name) => {
  expect(isBranchName(name)).toBe(false)
})

test.each(['', 'a b', 'a\nb', 'ü', 'x'.repeat(9_000), undefined])('no header carries the token %#', (token) => {
  expect(() => fixedToken(token as string)).toThrow('printable ASCII')
})
