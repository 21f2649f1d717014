/**
 * Runs the contestants in turn, `rounds` times, beginning with another one each round: what else the machine does then
 * falls on all of them alike. A first round of each warms up and isn't counted.
 * @param contestants name -> async (round) => a figure; round 0 is the warm-up
 * @returns name -> its figures, one a round
 */
export async function alternating(contestants, rounds, progress) {
  const names = Object.keys(contestants)
  const figures = Object.fromEntries(names.map((name) => [name, []]))
  for (const name of names) await contestants[name](0)
  for (let round = 1; round <= rounds; round += 1) {
    for (let i = 0; i < names.length; i += 1) {
      const name = names[(i + round) % names.length]
      const figure = await contestants[name](round)
      figures[name].push(figure)
      progress(`round ${round}/${rounds}  ${name}: ${Math.round(figure).toLocaleString('en-US')}/s`)
    }
  }
  return figures
}
