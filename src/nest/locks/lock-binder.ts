import type { DiscoveryService } from '@nestjs/core'
import { InvalidLockConfig } from '../../locks/index.js'
import { declarationsOf, type LockDeclaration } from './declaration.js'
import { InvalidSchedulerLocks } from './errors.js'
import { bindScope, type LockScope } from './lock-scope.js'

type Wrapper = ReturnType<DiscoveryService['getProviders']>[number]

/** Binds the app's locks to its objects with decorated methods. */
export class LockBinder {
  constructor(
    private readonly discovery: DiscoveryService,
    private readonly scope: LockScope,
  ) {}

  /**
   * To be called before the first instance is made: one that calls a locked method while the app starts then has its locks.
   * @throws InvalidSchedulerLocks listing what is wrong with each method's options
   */
  bindClasses(): void {
    const declarations = new Set<LockDeclaration>()
    for (const { metatype, token } of this.wrappers()) {
      for (const type of [metatype, token].filter((one) => typeof one === 'function')) {
        const found = [...declarationsOf(type), ...declarationsOf(type.prototype)]
        if (found.length > 0) bindScope(type, this.scope)
        for (const one of found) declarations.add(one)
      }
    }
    const problems = [...declarations].flatMap((one) => this.problemsOf(one))
    if (problems.length > 0) throw new InvalidSchedulerLocks(problems)
  }

  /** Two apps in one process may have the same classes; an instance belongs to one of them. */
  bindInstances(): void {
    for (const { instance } of this.wrappers()) {
      if (typeof instance === 'object' && instance !== null && declarationsOf(instance).length > 0)
        bindScope(instance, this.scope)
    }
  }

  private wrappers(): Wrapper[] {
    return [...this.discovery.getProviders(), ...this.discovery.getControllers()]
  }

  private problemsOf(declaration: LockDeclaration): readonly string[] {
    try {
      this.scope.configOf(declaration)
      return []
    } catch (error) {
      if (error instanceof InvalidSchedulerLocks) return error.problems
      if (!(error instanceof InvalidLockConfig)) throw error
      return error.problems.map((problem) => `${declaration.where}: ${problem}`)
    }
  }
}
