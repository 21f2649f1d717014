/** The server has too little room on its disk for what a first start needs. */
export class NotEnoughSpace extends Error {
  override readonly name = 'NotEnoughSpace'
}
