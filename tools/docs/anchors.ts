/** The anchor that Git hosts make of a heading: lower case, no marks, spaces as dashes. */
export const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .trim()
    .replace(/ /g, '-')
