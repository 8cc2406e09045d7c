export * from "./layers";
export * from "./recurrent";
export * from "./transformer";
export * as functional from "./functional";
export { Module, Parameter, type StateDict } from "./module";
export * as utils from "./utils";
