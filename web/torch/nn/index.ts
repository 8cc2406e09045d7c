export * from "./layers";
export * as functional from "./functional";
export { Module, Parameter, type StateDict } from "./module";
export * as utils from "./utils";
