export type { OrphansOptions } from './orphans/orphans.js'
export * from './public.js'
export type { GatewaySettings } from './regions/region-document.js'
