import pg from 'pg'

/** One statement over a connection of its own, which may die with its server. @returns its rows */
export async function query(url, text, values = []) {
  const client = new pg.Client(url)
  client.on('error', () => undefined)
  await client.connect()
  try {
    return (await client.query(text, values)).rows
  } finally {
    await client.end()
  }
}
