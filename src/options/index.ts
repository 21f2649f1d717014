export { replicaIdentity } from './replica-identity.js'
