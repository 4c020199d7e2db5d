// Listeners by the name of what they listen to.

export class Emitter<Events> {
  private listeners = new Map<keyof Events, Set<(value: never) => void>>();

  /** Calls `listener` from now on. Returns the function that ends it. */
  on<Name extends keyof Events>(name: Name, listener: (value: Events[Name]) => void): () => void {
    const all = this.listeners.get(name) ?? new Set();
    this.listeners.set(name, all.add(listener as (value: never) => void));
    return () => all.delete(listener as (value: never) => void);
  }

  protected emit<Name extends keyof Events>(name: Name, value: Events[Name]): void {
    for (const listener of [...(this.listeners.get(name) ?? [])]) listener(value as never);
  }
}
