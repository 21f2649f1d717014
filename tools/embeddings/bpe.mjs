const MOST_WORDS = 50_000

/**
 * Byte-pair encoding as SentencePiece does it: spaces become `▁`, characters are merged pair by pair in the order of `merges`, and what isn't in the
 * vocabulary becomes its bytes. Merges don't reach across a space, so words are encoded one by one, and remembered.
 *
 * @param model the `model` of a tokenizer.json: `vocab` (text to id) and `merges`
 * @returns a function that makes ids of a text
 */
export function bpe({ vocab, merges }) {
  const ranks = new Map(merges.map((merge, rank) => [Array.isArray(merge) ? merge.join(' ') : merge, rank]))
  const known = new Map()

  const idsOf = (word) => {
    const parts = [...word]
    for (;;) {
      let [best, at] = [Number.POSITIVE_INFINITY, -1]
      for (let i = 0; i + 1 < parts.length; i += 1) {
        const rank = ranks.get(`${parts[i]} ${parts[i + 1]}`)
        if (rank < best) [best, at] = [rank, i]
      }
      if (at < 0) break
      parts.splice(at, 2, parts[at] + parts[at + 1])
    }
    return parts.flatMap((part) => vocab[part] ?? bytesOf(part).map((byte) => vocab[byte] ?? vocab['<unk>']))
  }

  return (text) =>
    (`▁${text.replaceAll(' ', '▁')}`.match(/▁*[^▁]{1,200}|▁+/gu) ?? []).flatMap((word) => {
      const before = known.get(word)
      if (before) return before
      const ids = idsOf(word)
      if (known.size < MOST_WORDS) known.set(word, ids)
      return ids
    })
}

const bytesOf = (part) =>
  [...Buffer.from(part)].map((byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`)
