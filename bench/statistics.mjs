/** The middle one, or the mean of the two in the middle. */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length / 2
  return sorted.length % 2 === 1 ? sorted[Math.floor(middle)] : (sorted[middle - 1] + sorted[middle]) / 2
}

/**
 * The smallest value that at least `share` of all don't exceed (nearest rank): of 1..100 with 0.95 it is 95. So a p99 of
 * fewer than 100 values is the largest.
 * @throws RangeError without a value: a percentile of nothing would look like a very good one
 */
export function percentile(values, share) {
  if (values.length === 0) throw new RangeError('expected at least one value to take a percentile of')
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)]
}

/** Growth in units of y for each unit of x, by least squares. */
export function slope(points) {
  const mean = (pick) => points.reduce((sum, point) => sum + pick(point), 0) / points.length
  const [x, y] = [mean((point) => point[0]), mean((point) => point[1])]
  const above = points.reduce((sum, point) => sum + (point[0] - x) * (point[1] - y), 0)
  const below = points.reduce((sum, point) => sum + (point[0] - x) ** 2, 0)
  return below === 0 ? 0 : above / below
}

/** To so many digits after the point. */
export const rounded = (value, digits = 0) => Math.round(value * 10 ** digits) / 10 ** digits
