import { TEN } from '../ten-lifecycles.mjs'

export default TEN.map(({ lifecycle }) => lifecycle)
