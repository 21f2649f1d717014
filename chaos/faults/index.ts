export { faultsReportText } from './faults-report.js'
export { type FaultsResult, runFaults } from './run-faults.js'
