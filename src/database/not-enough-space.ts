/** The server's disk has too little room for what a first start needs. */
export class NotEnoughSpace extends Error {
  override readonly name = 'NotEnoughSpace'
}
