import { readFile } from 'node:fs/promises'

/** A code block of a page, with the heading that it stands under and the text that follows it. */
export interface CodeBlock {
  readonly heading: string
  readonly language: string
  readonly code: string
  /** The first line of text after it. */
  readonly after: string
}

export const readPage = (path: string): Promise<string> => readFile(new URL(`../../${path}`, import.meta.url), 'utf8')

/** Headings without their marks and code quotes. */
export function codeBlocks(page: string): CodeBlock[] {
  const blocks: CodeBlock[] = []
  let heading = ''
  const lines = page.split('\n')
  for (let i = 0; i < lines.length; i += 1) {
    const title = /^#+ (.+)$/.exec(lines[i]!)
    if (title) heading = title[1]!.replaceAll('`', '')
    const fence = /^( *)```(\w+)$/.exec(lines[i]!)
    if (!fence) continue
    const [, indent = '', language = ''] = fence
    const end = lines.indexOf(`${indent}\`\`\``, i + 1)
    const after = lines.slice(end + 1).find((line) => line !== '') ?? ''
    const code = lines.slice(i + 1, end).map((line) => line.slice(indent.length))
    blocks.push({ heading, language, code: code.join('\n'), after })
    i = end
  }
  return blocks
}
